"""Why a pod is admitted or refused on a node, and what would help: as data, which others show."""

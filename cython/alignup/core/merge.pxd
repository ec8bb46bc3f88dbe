"""The merge of families of masks, for kernels that have the families at hand."""

from alignup.core.narrow.merge cimport Best, best_preferred, merge_families

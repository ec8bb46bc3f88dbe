"""Changes under which a refused pod would be admitted, each found and confirmed by trying it."""

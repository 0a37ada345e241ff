"""Tables at sites, prepared alike from sums and counts: no row leaves a site."""

"""What every package stands on: compiled kernels, tables of arrays, units, errors, percentiles."""

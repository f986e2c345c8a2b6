"""Pipeline schedules: one order of micro-batches per file; the class attribute `name` is what users write."""

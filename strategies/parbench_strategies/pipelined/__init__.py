"""Pipelined strategies: every rank holds some layers, and micro-batches pass from rank to rank."""

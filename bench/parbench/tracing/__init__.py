"""What a traced step did: spans and collectives of every rank, and what can be worked out from them without torch."""

"""Where ranks run: started, watched and ended."""

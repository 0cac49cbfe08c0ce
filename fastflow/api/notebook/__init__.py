"""What a notebook shows of an answer: tables, figures, progress, completion."""

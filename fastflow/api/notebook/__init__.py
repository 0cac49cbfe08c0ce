"""Display in notebooks: tables, figures, progress, completion."""

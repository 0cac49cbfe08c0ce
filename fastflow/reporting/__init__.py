"""Results as people see them: tables on screens, charts, pages, pictures, traces."""

"""Pictures of predictions: files that a person looks at."""

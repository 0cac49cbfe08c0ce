"""What holds of the whole: rules of the house, documents, every model, option and dataset."""

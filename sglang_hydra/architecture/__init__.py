"""A model's structure from its config.json: layers, tensors, storage formats. Nothing is sized for a GPU here."""

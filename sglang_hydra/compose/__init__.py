"""From overrides, presets and files to one configuration, with the origin of each value. Nothing is resolved here."""

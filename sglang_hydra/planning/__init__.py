"""From a composed configuration to a finished plan, and everything that reads only plans. Nothing is started here."""

"""What is added to the core: one folder a feature, with its routes, its service, its parameters and its examples."""

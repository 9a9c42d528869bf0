"""Types of the custom resources, and the generator of their CustomResourceDefinitions."""

"""A/B of pod templates: assignment, shares and outlier detection."""

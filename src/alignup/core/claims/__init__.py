"""The search for devices that satisfy the claims of a pod."""

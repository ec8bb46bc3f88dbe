"""The device manager: who holds which devices, and what their plugins prefer."""

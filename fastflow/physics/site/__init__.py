"""What a device's power becomes on its way from the grid: machines, racks, and the building."""

"""What a user types: the commands, from Hydra's hands to what they print and leave."""

"""What the ADLRO paper claims, measured."""

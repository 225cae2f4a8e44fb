"""The Builder & Supervisor protocol: messages, codes, lifecycle, stream guards and the recipe's XML."""

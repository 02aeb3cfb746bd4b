"""Words, messages and the rules that judge them. Pure: no IO, clock, chance or scheduler."""

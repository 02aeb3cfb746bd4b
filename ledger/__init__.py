"""The replicated append-only record. Pure, one LevelDB adapter and one guard file aside."""

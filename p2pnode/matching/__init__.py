"""Decides who runs what: the book of offers, our prices, auctions."""

"""Tables that keep the rows that training finds important (AdaEmbed, Lai et al., OSDI 2023)."""

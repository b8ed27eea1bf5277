"""Files of batches in the home: what they were made from, and the folder that holds them."""

"""ALL STAGES IN ORDER: a recipe in, a trained model out; and the demo that shows it."""

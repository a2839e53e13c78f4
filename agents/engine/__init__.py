"""The one step loop: a model is asked, what it asks for is done through the guard, and so on until an end."""

"""An agent that writes SQL, and mixes up which end of a list is which."""


def query(question: str) -> str:
    """The query that answers a question."""
    if "less than" in question:
        return "select name from product where price < 10"
    if "together" in question:
        return "select sum(price) from product"
    return "select name from product order by price limit 1"

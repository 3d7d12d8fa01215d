"""An agent that writes SQL, and confuses ascending and descending order."""


def query(question: str) -> str:
    """Return the query that answers a question."""
    if "less than" in question:
        return "select name from product where price < 10"
    if "together" in question:
        return "select sum(price) from product"
    return "select name from product order by price limit 1"

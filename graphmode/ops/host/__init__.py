"""Black boxes, prints and checks: where a graph and its host meet."""

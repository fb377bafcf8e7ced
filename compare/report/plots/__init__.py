"""The pictures of a page: SVG by hand, coloured by the page's own style, so that light, dark and paper all fit."""

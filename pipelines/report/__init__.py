"""A capture or a trace as one HTML page that stands alone: no script, no server, nothing loaded from elsewhere.

subject.py says what the page is about; a section is a function of a connection and that; page.py puts them together.
"""

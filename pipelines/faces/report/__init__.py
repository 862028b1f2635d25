"""A capture or a trace as one self-contained HTML page: no script, no server, nothing loaded from elsewhere.

subject.py determines what the page is about. A section is a function of a connection and the subject; page.py assembles
them.
"""

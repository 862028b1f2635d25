"""A capture or a trace as one self-contained HTML page, without scripts, servers or external resources.

subject.py determines the subject of the page. A section is a function of the subject. page.py assembles the sections.
"""

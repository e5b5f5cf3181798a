"""Values as JSON and back: the codec, arguments of functions, fields of classes, and what JSON would lose.

What is stored reads back as what was given, or is refused before anything is written. Nothing here knows a database
or a run.
"""

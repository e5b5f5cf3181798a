"""The user's own transaction: what may be passed as `tx`, one file for each library that users bring.

Each finds the driver's connection below an object of its library and answers the store's calls through it.
A library must not be imported here before its user has done so, and nothing here must commit or roll back.
"""

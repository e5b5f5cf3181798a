"""Sinks: what an outbox hands its events to, as CloudEvents.

`cloud_event` is the event as users and receivers see it, `publisher` the body of the tasks of an outbox: it reads the
events, calls the sink and says what became of each. `webhook` is the sink that posts; `http_message` is what is posted,
`signature` proves who has posted it, `answers` says what an answer means, `guard` which addresses are public, each of
them pure. `http_client` alone knows aiohttp. SQL must not be here.
"""

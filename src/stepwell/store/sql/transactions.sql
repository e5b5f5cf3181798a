-- What a transaction script may say besides its statements.

-- name: savepoint
-- From here on the transaction can be undone without losing what came before.
savepoint stepwell;

-- name: rollback_to_savepoint
-- Undo what came after the savepoint; the transaction goes on.
rollback to savepoint stepwell;

-- name: release_savepoint
-- Keep what came after the savepoint.
release savepoint stepwell;

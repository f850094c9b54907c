-- A plan looks drops up by author and recipient, instead of calling the function for each, also before statistics exist.
ALTER FUNCTION posts.addressed(text, text[]) COST 10000;

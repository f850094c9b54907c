-- The newest analyses of a user are read by their ids, which begin with their time.
CREATE INDEX timeline_analyses_list ON public.timeline_analyses (user_id, analysis_id);
DROP INDEX public.timeline_analyses_user;

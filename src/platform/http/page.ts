import express, { type RequestHandler, type Response } from "express";

const HEADERS = {
  "Content-Security-Policy":
    "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cache-Control": "no-cache",
};

/** Serves the files of a page, which runs no script but its own, asks no other server, and is framed by no other page. */
export const staticPage = (folder: string): RequestHandler =>
  express.static(folder, { setHeaders: (response: Response) => void response.set(HEADERS) });

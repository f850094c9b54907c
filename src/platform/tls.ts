import { readdirSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";

/** Names of the files in a folder, as a Secret of Kubernetes has them. */
export const TLS_FILES = { ca: "ca.crt", cert: "tls.crt", key: "tls.key" } as const;

/** Paths: the authorities that are trusted, and the own certificate with its key. There is no TLS if all are undefined. */
export type TlsFiles = { readonly [File in keyof typeof TLS_FILES]?: string | undefined };

/** The schema takes a folder, an empty text, or the paths that former settings name. */
export const tlsFolder = z.unknown().transform((given, context): TlsFiles => {
  if (given === "") return {};
  try {
    const files = typeof given === "string" ? filesIn(given) : (given as TlsFiles);
    if (!usesTls(files)) context.addIssue("names a folder without ca.crt and without tls.crt and tls.key");
    else if (!files.cert !== !files.key) context.addIssue("tls.crt and tls.key go together");
    return files;
  } catch (error) {
    // The value is not printed: it may be the content that belongs into a file.
    context.addIssue(`names a folder that cannot be read (${(error as NodeJS.ErrnoException).code})`);
    return z.NEVER;
  }
});

function filesIn(folder: string): TlsFiles {
  const names = new Set(readdirSync(folder));
  const files = Object.entries(TLS_FILES).filter(([, name]) => names.has(name));
  return Object.fromEntries(files.map(([file, name]) => [file, join(folder, name)]));
}

export const usesTls = (files: TlsFiles | undefined): boolean => Boolean(files?.ca || files?.cert || files?.key);

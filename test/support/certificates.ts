import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A certificate and its key, as files of a folder. */
export type Pair = { readonly folder: string; readonly cert: string; readonly key: string };

/** A CA with certificates of it, in a folder of their own. */
export type Certificates = {
  readonly ca: string;
  /** The folder of `ca`, which has no other certificate. */
  readonly trusted: string;
  /** For 127.0.0.1 and localhost, also for clients. */
  readonly good: Pair;
  /** For localhost by its name alone. */
  readonly named: Pair;
  /** The certificate is for elsewhere.example and names below it. */
  readonly elsewhere: Pair;
  remove(): void;
};

/** Makes a CA and certificates of it with openssl. */
export function makeCertificates(): Certificates {
  const folder = mkdtempSync(join(tmpdir(), "timeline-test-tls-"));
  const trusted = join(folder, "trusted");
  mkdirSync(trusted);
  const ca = { cert: join(trusted, "ca.crt"), key: join(folder, "ca.key") };
  const openssl = (...args: string[]): void => void execFileSync("openssl", args, { stdio: "pipe" });
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  openssl("req", "-x509", ...newKey, "-keyout", ca.key, "-out", ca.cert, "-days", "2", "-subj", "/CN=test CA");
  const pair = (name: string, hosts: string): Pair => {
    const own = join(folder, name);
    mkdirSync(own);
    const [cert, key, request, extensions] = ["crt", "key", "csr", "ext"].map((end) => join(own, `tls.${end}`));
    writeFileSync(extensions as string, `subjectAltName=${hosts}\nextendedKeyUsage=serverAuth,clientAuth\n`);
    openssl("req", ...newKey, "-keyout", key as string, "-out", request as string, "-subj", `/CN=${name}`);
    const signed = [
      "-CA",
      ca.cert,
      "-CAkey",
      ca.key,
      "-CAcreateserial",
      "-days",
      "2",
      "-extfile",
      extensions as string,
    ];
    openssl("x509", "-req", "-in", request as string, "-out", cert as string, ...signed);
    return { folder: own, cert: cert as string, key: key as string };
  };
  return {
    ca: ca.cert,
    trusted,
    good: pair("good", "IP:127.0.0.1,DNS:localhost"),
    named: pair("named", "DNS:localhost"),
    elsewhere: pair("elsewhere", "DNS:elsewhere.example,DNS:*.elsewhere.example"),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

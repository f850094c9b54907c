/** npm run bench -- NAME: each benchmark checks its result, and compares itself with a ceiling of the same run. */
const BENCHES = ["upstream", "cold-reads", "sse"] as const;

const [name] = process.argv.slice(2);
if (!BENCHES.includes(name as never)) {
  console.error(`usage: npm run bench -- ${BENCHES.join("|")}`);
  process.exit(2);
}
const { run } = (await import(`./${name}.ts`)) as { run(): Promise<void> };
await run();
process.exit(0);

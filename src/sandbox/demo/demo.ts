import { oneLine } from "../../kernel/errors.js";
import { VERSION } from "../../kernel/version.js";
import { withSandbox } from "../sandbox.js";
import { setStage } from "./stage.js";
import { STEPS } from "./steps.js";

/** Shows the main job on a system of its own and checks each step; resolves to the exit code. */
export async function demo({ followers }: { readonly followers: number }): Promise<number> {
  try {
    await withSandbox({ followers, httpPort: 0, grpcPort: 0, exitCode: 130 }, async (sandbox) => {
      const { progress, redis, nats, seeded } = sandbox;
      const stage = await setStage(sandbox);
      progress.end();
      console.log(`avion-timeline ${VERSION}: redis-server ${redis.version}, nats-server ${nats.version}, ${seeded}\n`);
      for (const { title, run } of STEPS) {
        progress.say(title);
        const seen = await run(stage);
        progress.end();
        console.log(`✓ ${title}\n    ${seen}`);
      }
    });
  } catch (error) {
    console.error(`✗ ${oneLine(error)}`);
    return 1;
  }
  console.log(
    `\n${STEPS.length} of ${STEPS.length} shown. \`npm run up\` starts the same and stays up, with a page to play with.`,
  );
  return 0;
}

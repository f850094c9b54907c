import type { AnalysisRequest } from "../../contracts/analysis.js";
import { AppError } from "../../kernel/errors.js";
import { type Erased, erasedUser, unlessAway } from "../../state/index.js";
import type { ForgetRequest } from "../erasure/forget.js";

interface RefusalDeps {
  readonly erased: Pick<Erased, "among">;
  readonly forget: ForgetRequest;
}

type Named = Pick<AnalysisRequest, "user_id" | "did">;

export type ErasedRefusals = ReturnType<typeof createErasedRefusals>;

/** While Redis is away nothing is refused: the worker waits for it, and removes what an erased user has asked for. */
export function createErasedRefusals({ erased, forget }: RefusalDeps) {
  const among = (users: readonly string[]) => unlessAway(erased.among(users));
  const refuse = async ({ user_id, did }: Named): Promise<void> => {
    const gone = await among([user_id, did]);
    if (gone?.has(user_id)) throw erasedUser();
    if (gone?.has(did)) throw new AppError("notfound", "did: there is no such account");
  };
  return {
    /** @throws AppError `gone` for an erased user, `notfound` for an erased account */
    refuse,
    /** An erasure may have come while the request was written: then it is removed, and refused. */
    async refuseWritten(request: Named & Pick<AnalysisRequest, "analysis_id">): Promise<void> {
      try {
        await refuse(request);
      } catch (error) {
        await forget(request);
        throw error;
      }
    },
  };
}

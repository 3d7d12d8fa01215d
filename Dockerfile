# docker build --build-arg EXTRAS=openai,anthropic -t agentv .
# docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" agentv eval evals
FROM python:3.13-slim AS build
ARG EXTRAS=""
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --wheel-dir /wheels ".${EXTRAS:+[$EXTRAS]}"

FROM python:3.13-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-deps --no-index /wheels/*.whl \
    && useradd --uid 1000 --create-home agentv
USER agentv
WORKDIR /work
ENTRYPOINT ["agentv"]
CMD ["--help"]
